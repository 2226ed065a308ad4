"""What KV blocks on the disk live through: kills, damage, full disks, several writers."""
