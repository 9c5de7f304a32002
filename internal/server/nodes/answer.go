package nodes

import (
	"bytes"
	"encoding/json"

	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// The answer to a short question can have 64 MiB. So the bytes of the answer use up the share of the node that asks,
// as if the node had sent them. There is also one common limit for all answers in memory and all content that the
// server reads for nodes. See answerBeside.

// The following constants are the bytes of JSON around the content of an export and of a hiera value.
const (
	aroundExport = 110
	aroundText   = 4
	aroundValue  = 90
)

// timesOfAnswer is the number of copies of an answer in memory until the bus has the answer. The server makes one copy
// when it builds the answer, and another copy when it sends the answer. The server builds the answer for one hiera
// level in one piece of memory, which doubles when it grows.
const (
	timesOfAnswer = 2
	timesOfHiera  = 4
)

// sizeOfAnswer returns approximately how many bytes an answer has, and how much memory it needs while the server
// makes and sends it.
func sizeOfAnswer(out any) (size, memory int64) {
	switch out := out.(type) {
	case *wire.Answer:
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

// checkAnswer refuses an answer that is too large for the bus. The server checks the answer before it encodes the
// answer, because such a large answer would need more memory than the server reserves for a node.
func checkAnswer(out any) error {
	answer, is := out.(*wire.Answer)
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

// The function `forget` empties an answer.
func forget(out any) {
	switch out := out.(type) {
	case *wire.Answer:
		*out = wire.Answer{}
	case *wire.HieraData:
		*out = wire.HieraData{}
	}
}

// encodeAnswered encodes one export after the other into a buffer that is large enough from
// the start.
func encodeAnswered(a *wire.Answer) ([]byte, error) {
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
		b.Truncate(b.Len() - 1) // remove the newline that Encode has added
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}
