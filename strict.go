package tutti

import (
	"bytes"
	"encoding/json"
)

// Strictly is the decoder for orders and questions, which a node must carry out as a whole. A field
// that this release does not know is an error.
func Strictly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
