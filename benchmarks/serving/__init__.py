"""Our server and others' under the same load, in turns."""
