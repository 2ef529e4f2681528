"""What a model or tokenizer may cost, told from its bytes before any other library reads them."""
