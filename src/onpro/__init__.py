"""Online class-incremental learning."""
