package data

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/tutti-project/tutti"
)

// The type `sum` is the digest of a set of members. It consists of two numbers: the sum of the members' SHA-256
// digests modulo 2^256, and the number of members. So a member can be added or removed without reading the other
// members.
//
// A sum has two advantages. A sum does not depend on the order. If one of 50,000 exports
// changes, the others need not be hashed. XOR would have the same advantages, but it is
// linear. A member that occurs twice would disappear. A publisher with a few hundred members
// could also compute a subset that disappears, and then a change would wake no reader. For
// sums, an attacker must solve a subset-sum problem. An attacker who can choose very many
// members can solve even this problem (generalised birthdays, Wagner 2002). The only effect
// would be that readers of the attacker's own data wake later. No content is ever looked up
// by this digest, and blobs have a digest of their bytes.
type sum struct {
	words [4]uint64 // least significant first
	count int
}

// sumOf returns the sum of the members that the filter accepts.
func sumOf(members []member, filter *Filter) sum {
	var s sum
	for i := range members {
		if m := &members[i]; filter == nil || filter.match(&m.Export) {
			s.add(m.digest)
		}
	}
	return s
}

func (s *sum) add(member [sha256.Size]byte) {
	one := sum{count: 1}
	for i := range one.words {
		one.words[i] = binary.BigEndian.Uint64(member[sha256.Size-8*(i+1):])
	}
	*s = s.plus(one)
}

func (s sum) plus(o sum) sum {
	var carry uint64
	for i := range s.words {
		s.words[i], carry = bits.Add64(s.words[i], o.words[i], carry)
	}
	s.count += o.count
	return s
}

func (s sum) minus(o sum) sum {
	var borrow uint64
	for i := range s.words {
		s.words[i], borrow = bits.Sub64(s.words[i], o.words[i], borrow)
	}
	s.count -= o.count
	return s
}

// The method `digest` hashes the sum and the number again. So the digest of an empty set is a normal digest, and not
// the number 0.
func (s sum) digest() tutti.Digest {
	text := make([]byte, sha256.Size, sha256.Size+24)
	for i, word := range s.words {
		binary.BigEndian.PutUint64(text[sha256.Size-8*(i+1):], word)
	}
	text = strconv.AppendInt(append(text, " of "...), int64(s.count), 10)
	return tutti.DigestOf(text)
}
