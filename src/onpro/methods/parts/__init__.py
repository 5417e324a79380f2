"""What several methods share: networks, teachers, contrasts, gradients."""
