"""Discovery: finds agents by mDNS or by given addresses."""
