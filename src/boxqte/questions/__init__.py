"""What is asked, as a finite problem: properties, and the grid of cells that space, model and property make."""
