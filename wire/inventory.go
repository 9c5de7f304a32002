package wire

import (
	"bytes"
	"encoding/json"

	"github.com/tutti-project/tutti"
)

// WantedInventory lists the parts of a node's inventory that the server wants. For each part it has the state that the
// server holds. The state is empty if the server holds nothing.
type WantedInventory struct {
	Parts map[tutti.InventoryPart]tutti.Digest `json:"parts"`
}

// Inventory is the first line of a message of OpInventory. The content in gzip follows.
type Inventory struct {
	Part tutti.InventoryPart `json:"part"`
	tutti.Held
}

// EncodeInventory returns the message of OpInventory.
func EncodeInventory(in Inventory, content []byte) ([]byte, error) {
	head, err := json.Marshal(in)
	return append(append(head, '\n'), content...), err
}

// DecodeInventory decodes a message of EncodeInventory. The content shares memory with the message. The error is
// CodeConflict if the content is cut off. The node must then send the message again.
func DecodeInventory(message []byte) (Inventory, []byte, error) {
	head, content, _ := bytes.Cut(message, []byte("\n"))
	var in Inventory
	if err := json.Unmarshal(head, &in); err != nil {
		return in, nil, tutti.Wrap(tutti.CodeInvalid, err, "message %q", OpInventory)
	}
	if in.Part != tutti.InventoryFacts && in.Part != tutti.InventoryCatalog {
		return in, nil, tutti.Errorf(tutti.CodeInvalid, "message %q: unknown part %q", OpInventory, string(in.Part))
	}
	if err := in.Validate(); err != nil {
		return in, nil, err
	}
	if most, _ := in.Part.Most(); int64(len(content)) > most {
		return in, nil, tutti.Errorf(tutti.CodeInvalid, "inventory: %s of %d bytes, at most %d", in.Part, len(content), most)
	}
	if in.Left != "" {
		if len(content) > 0 {
			return in, nil, tutti.Errorf(tutti.CodeInvalid, "inventory: %s with content and a reason for its lack", in.Part)
		}
	} else if tutti.DigestOf(content) != in.Blob {
		return in, nil, tutti.Errorf(tutti.CodeConflict, "inventory: the content in the message is not the content that the message names; send it again")
	}
	in.Size = int64(len(content))
	return in, content, nil
}
