"""Discovery: finding agents by mDNS or by the addresses that were given."""
