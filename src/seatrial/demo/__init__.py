"""The whole voyage on one machine. It stands above the campaigns, because it uses them all."""
