"""An algorithm made of algorithms, one for each part of the parameters."""
