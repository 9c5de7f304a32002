package api

import (
	"time"

	"github.com/tutti-project/tutti"
)

// JoinRequest asks the server to admit Key under the name in a Puppet certificate. The key signs the request, and so does
// the certificate's key. Package identity signs and verifies the request.
type JoinRequest struct {
	Certificate string        `json:"certificate"` // in PEM
	Key         tutti.NodeKey `json:"key"`
	BoxKey      string        `json:"box_key"`
	Signature   []byte        `json:"signature"` // by Key
	Proof       []byte        `json:"proof"`     // by the certificate's key
	// Binding belongs to the connection and is part of what both keys sign. The server takes it from the connection.
	Binding []byte `json:"-"`
}

// JoinAnswer has either Enrolled or Pending.
type JoinAnswer struct {
	Enrolled *Enrolled `json:"enrolled,omitempty"`
	// Pending says why an operator must approve the machine first. The machine then asks again.
	Pending string `json:"pending,omitempty"`
}

// SetJoinCA is the Puppet CA of a site.
type SetJoinCA struct {
	tutti.JoinCASet
	NoCRL  bool `json:"no_crl,omitempty"` // the site has no CRL
	Remove bool `json:"remove,omitempty"` // no machine may join with a certificate any more
}

// JoinCAView describes the Puppet CA of the site, and says how a machine joins.
type JoinCAView struct {
	Subjects []string  `json:"subjects,omitempty"` // the names of the CAs; empty if the server has no CA
	Ends     time.Time `json:"ends,omitzero"`      // when the first of the CAs ends
	HasCRL   bool      `json:"has_crl,omitempty"`
	CRLEnds  time.Time `json:"crl_ends,omitzero"` // when the first of the CRLs ends; zero if no CRL says when it ends
	// Server and Pin are what `tutti join --puppet-certificate` needs.
	Server string       `json:"server"`
	Pin    tutti.Digest `json:"pin"`
	// Revoked are nodes whose certificate the CRL revokes. They are still members of the fleet.
	Revoked []tutti.NodeName `json:"revoked,omitempty"`
}

// PendingView is a machine that wants to join with its Puppet certificate.
type PendingView struct {
	tutti.NodePending
	At       time.Time `json:"at"` // when the machine first asked
	Approved bool      `json:"approved,omitempty"`
	Rejected bool      `json:"rejected,omitempty"`
	// Groups are the groups that the approval names.
	Groups []tutti.GroupName `json:"groups,omitempty"`
}

// ApproveNode lets a machine join that waits for approval, in these groups. Serial is the serial number of its certificate.
// Serial may be empty if only one machine asks under the name.
type ApproveNode struct {
	Node   tutti.NodeName    `json:"node"`
	Serial string            `json:"serial,omitempty"`
	Groups []tutti.GroupName `json:"groups,omitempty"`
}

// RejectNode refuses a machine that waits for approval. Serial is as in ApproveNode.
type RejectNode struct {
	Node   tutti.NodeName `json:"node"`
	Serial string         `json:"serial,omitempty"`
}
