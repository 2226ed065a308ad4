"""What a model needs of a machine, before anything but headers is loaded."""
