"""What goes wrong in Vision Transformers, what must hold of right ones, and the tools that tell which is which."""
