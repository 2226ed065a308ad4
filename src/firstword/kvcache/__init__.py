"""Where keys and values live: groups, blocks, block tables and storage."""
