package tutti

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Machine is one of the machines that use a node's key.
type Machine struct {
	Boot   string `json:"boot,omitempty"`
	Host   string `json:"host,omitempty"`
	Ticket Digest `json:"ticket"` // the machine's ticket
	IsNode bool   `json:"is_node,omitempty"`
	// SeenAt is the time of the machine's last hello. If this time is long ago, the machine may no longer exist.
	SeenAt time.Time `json:"seen_at,omitzero"`
}

// String returns a text for people.
func (m Machine) String() string {
	_, ticket, _ := strings.Cut(string(m.Ticket), ":")
	out := fmt.Sprintf("boot %s, host %s, ticket %.12s", cmp.Or(m.Boot, "unknown"), cmp.Or(m.Host, "unknown"), ticket)
	if m.IsNode {
		out += ", which is the node"
	}
	return out
}
