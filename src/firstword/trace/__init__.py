"""What happened: typed events, their recorder, and the explanation made from them."""
