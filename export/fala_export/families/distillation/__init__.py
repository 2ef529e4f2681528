"""Small students of large sentence encoders: vocabulary, first weights, training, report."""
