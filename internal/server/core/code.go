package core

const MaxBlob = 64 << 20

const MaxCodeFiles = 200_000
