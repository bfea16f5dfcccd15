forest
