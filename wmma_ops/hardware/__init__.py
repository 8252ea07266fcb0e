"""What is known of the hardware: targets, matrix instructions, lane layouts, geometry, occupancy."""
