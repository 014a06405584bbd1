"""Handing the model over: adapter or merged model, proven equal to what was trained, with a card."""
