"""What `radixrt doctor` looks at: each module yields findings, each of which stands by itself."""
