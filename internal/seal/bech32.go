package seal

import "strings"

// encodeBech32 encodes a key in the form that age reads (BIP 173). The encoder of age is not public, and other encoders
// are parts of large libraries for currencies.
func encodeBech32(prefix string, data []byte) string {
	const alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
	var words []byte // words of 5 bits
	bits, have := uint(0), uint(0)
	for _, b := range data {
		bits, have = bits<<8|uint(b), have+8
		for ; have >= 5; have -= 5 {
			words = append(words, byte(bits>>(have-5)&31))
		}
	}
	if have > 0 {
		words = append(words, byte(bits<<(5-have)&31))
	}
	var out strings.Builder
	out.WriteString(prefix + "1")
	for _, w := range append(words, checksum(prefix, words)...) {
		out.WriteByte(alphabet[w])
	}
	return out.String()
}

func checksum(prefix string, words []byte) []byte {
	var all []byte
	for i := range len(prefix) {
		all = append(all, prefix[i]>>5)
	}
	all = append(all, 0)
	for i := range len(prefix) {
		all = append(all, prefix[i]&31)
	}
	all = append(append(all, words...), 0, 0, 0, 0, 0, 0)
	sum := uint32(1)
	for _, v := range all {
		top := sum >> 25
		sum = sum&0x1ffffff<<5 ^ uint32(v)
		for i, factor := range []uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				sum ^= factor
			}
		}
	}
	sum ^= 1
	out := make([]byte, 6)
	for i := range out {
		out[i] = byte(sum >> (5 * (5 - i)) & 31)
	}
	return out
}
