package nodes

import (
	"bytes"
	"encoding/json"

	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// A short question can have an answer of 64 MiB. So the asking node pays for the answer's bytes as if it had sent them, and all
// answers in memory have a common bound with what is read for nodes. See answerBeside.

// Bytes of JSON around the content of an export and of a hiera value.
const (
	aroundExport = 110
	aroundText   = 4
	aroundValue  = 90
)

// timesOfAnswer is how often the bytes of an answer are in memory until the bus has it: while it is made, and while it is sent.
// The level of hiera is made in one piece, whose memory doubles while it grows.
const (
	timesOfAnswer = 2
	timesOfHiera  = 4
)

// sizeOfAnswer returns about how many bytes an answer has, and how many are in memory while it is made and sent.
func sizeOfAnswer(out any) (size, memory int64) {
	switch out := out.(type) {
	case *wire.Answered:
		n := len(out.Value)
		for _, e := range out.Exports {
			n += policy.Bytes(e) + len(e.Node) + aroundExport + aroundText*(len(e.Parameters)+len(e.Tags)+len(e.Sensitive))
		}
		return int64(n), timesOfAnswer * int64(n)
	case *wire.HieraData:
		n := 0
		for key, value := range out.Data {
			n += 2*len(key) + len(value) + aroundValue
		}
		return int64(n), timesOfHiera * int64(n)
	}
	return 0, 0
}

// checkAnswer refuses an answer that is too large for the bus, before it is encoded: no share could pay for it.
func checkAnswer(out any) error {
	answer, is := out.(*wire.Answered)
	if !is {
		return nil
	}
	n := len(answer.Value)
	for _, e := range answer.Exports {
		n += policy.Bytes(e)
	}
	if n > maxAnswered {
		return tooLarge(n, answer.Exports)
	}
	return nil
}

// forget empties an answer.
func forget(out any) {
	switch out := out.(type) {
	case *wire.Answered:
		*out = wire.Answered{}
	case *wire.HieraData:
		*out = wire.HieraData{}
	}
}

// encodeAnswered encodes one export after the other into memory that does not have to grow.
func encodeAnswered(a *wire.Answered) ([]byte, error) {
	rest := *a
	rest.Exports = nil
	head, err := encode(rest)
	if err != nil || len(a.Exports) == 0 {
		return head, err
	}
	var b bytes.Buffer
	size, _ := sizeOfAnswer(a)
	b.Grow(len(head) + int(size))
	b.Write(head[:len(head)-1])
	b.WriteString(`,"exports":`)
	one := json.NewEncoder(&b)
	one.SetEscapeHTML(false)
	between := byte('[')
	for i := range a.Exports {
		b.WriteByte(between)
		between = ','
		if err := one.Encode(&a.Exports[i]); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the end of the line
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}
