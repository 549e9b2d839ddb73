"""What ``make new-connector`` writes from: a connector with every capability, its cases, its Portuguese texts, and the
small system that they connect to. ``new_system`` stands for the name, in each of its forms."""
