"""How fast a model runs here: cases, their measurement, the machine's limits and the report."""
