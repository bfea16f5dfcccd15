happy
