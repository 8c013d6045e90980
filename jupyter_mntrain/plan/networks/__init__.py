"""Networks beyond the chosen interfaces: InfiniBand and RoCE, and what is not used."""
