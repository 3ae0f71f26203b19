"""The protocols that ship with the product; see `tradewind.points.driver` for what a driver is."""
