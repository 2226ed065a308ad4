"""What a server lives through: no memory left, clients that vanish, signals, long mixed load."""
