silver
