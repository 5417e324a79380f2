"""Parts of methods: prototypical feedback, the contrast of rotated images, nearest means."""
