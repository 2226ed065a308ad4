"""The parts that networks are made of, written once against the ops protocol."""
