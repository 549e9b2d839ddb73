"""What the stages share: the lane runtime, its window and the stop channel."""
