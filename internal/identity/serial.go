package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"math/big"
)

// A serial number is bound to the key of its certificate. The log identifies an operator's certificate only by its
// serial number. If serial numbers were not bound to keys, an attacker with the CA's key could make another
// certificate with a serial number from the log. A serial number has 20 bytes. The 20 bytes are a mark, random bytes,
// and the beginning of a digest of these bytes and the key. Earlier releases used only random bytes, at most 16.
const (
	serialLength = 20
	serialRandom = 6 // bytes, including the mark
	serialMark   = 1
)

// newSerial makes a serial number for a key.
func newSerial(key *ecdsa.PublicKey) (*big.Int, error) {
	start := make([]byte, serialRandom)
	if _, err := rand.Read(start); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	start[0] = serialMark
	whole, err := serialOfKey(start, key)
	return new(big.Int).SetBytes(whole), err
}

func serialOfKey(start []byte, key *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{start, der}, nil))
	return append(bytes.Clone(start), sum[:serialLength-serialRandom]...), nil
}

// serialFits reports whether the serial number of a certificate fits its key.
func serialFits(cert *x509.Certificate) bool {
	said := cert.SerialNumber.Bytes()
	if len(said) < serialLength {
		return true // from an earlier release
	}
	key, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return false
	}
	want, err := serialOfKey(said[:serialRandom], key)
	return err == nil && bytes.Equal(said, want)
}
