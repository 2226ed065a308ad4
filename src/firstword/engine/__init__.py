"""From requests to steps and back: scheduler, batch builder, runner, engine. Knows token ids only."""
