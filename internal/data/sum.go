package data

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/tutti-project/tutti"
)

// sum is the digest of a set. To add or remove one member takes no
// other member: it is the sum of the members' SHA-256 digests modulo 2^256, and their number.
//
// Why a sum: it does not depend on the order, and one export of 50,000 can change
// without hashing the others. Exclusive or would do so, too, but it is linear: a
// member that is there twice vanishes, and a publisher of a few hundred members
// can solve for a subset that vanishes, so that a change would wake no reader. For sums
// that is a subset-sum problem. A determined publisher of very many members of its own
// choice can solve even that (generalised birthdays, Wagner 2002). The only effect would
// be that its own publications wake their readers later: an answer's content is never
// looked up by such a digest, and blobs are hashed as
// bytes.
type sum struct {
	words [4]uint64 // least significant first
	count int
}

// sumOf is the sum of the members that pass a filter.
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

// digest hashes sum and number once more, so that the digest of an empty set is
// an ordinary digest, and not the number 0.
func (s sum) digest() tutti.Digest {
	text := make([]byte, sha256.Size, sha256.Size+24)
	for i, word := range s.words {
		binary.BigEndian.PutUint64(text[sha256.Size-8*(i+1):], word)
	}
	text = strconv.AppendInt(append(text, " of "...), int64(s.count), 10)
	return tutti.DigestOf(text)
}
