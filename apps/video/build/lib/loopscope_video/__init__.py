"""A video control loop: a camera on a pan-tilt-zoom head, a tracker that steers it, a display."""
