green
