"""What happens: rules, the simulation that follows them, and its clock."""
