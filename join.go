package tutti

import (
	"path"
	"strings"
	"time"
)

// joinEvents are the kinds of events about machines that join with their Puppet certificate (ADR 0031).
var joinEvents = []eventKind{
	{func() Body { return new(JoinCASet) }, ScopeNone, TrailAlways, KeepLast},
	{func() Body { return new(NodePending) }, ScopeNode, TrailAlways, KeepOwn},
	{func() Body { return new(NodeApproved) }, ScopeNode, TrailAlways, KeepOwn},
	{func() Body { return new(NodeRejected) }, ScopeNode, TrailAlways, KeepOwn},
}

// NodeCertificate is what the Puppet certificate of a node says. The site's Puppet CA has signed it, so the node cannot
// change it.
type NodeCertificate struct {
	Key    Digest    `json:"key"`    // digest of the public key. A renewed certificate has the same key
	Serial string    `json:"serial"` // in hexadecimal digits
	Issuer Digest    `json:"issuer"` // digest of the public key of the CA that signed the certificate
	Ends   time.Time `json:"ends"`
	// Extensions are the trusted extensions by their short names, for example `pp_role`. An extension without a short
	// name has its OID as its name.
	Extensions map[string]string `json:"extensions,omitempty"`
}

// JoinRule lets machines with a Puppet certificate join without an operator.
type JoinRule struct {
	Certname string `json:"certname"` // pattern
	// Extensions are patterns for trusted extensions. The certificate needs each of these extensions.
	Extensions map[string]string `json:"extensions,omitempty"`
	Groups     []GroupName       `json:"groups,omitempty"` // the groups of a machine that joins by this rule
}

// JoinRuleFor returns the first rule for a certificate. It returns false if there is none.
func (f Fleet) JoinRuleFor(name NodeName, extensions map[string]string) (JoinRule, bool) {
	for _, rule := range f.Join {
		if rule.fits(name, extensions) {
			return rule, true
		}
	}
	return JoinRule{}, false
}

func (r JoinRule) fits(name NodeName, extensions map[string]string) bool {
	if !matches(r.Certname, string(name)) {
		return false
	}
	for extension, pattern := range r.Extensions {
		if value, has := extensions[extension]; !has || !matches(pattern, value) {
			return false
		}
	}
	return true
}

// The function `matches` is like path.Match, but the slash has no meaning of its own.
func matches(pattern, text string) bool {
	const slash = "\x00"
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", slash), strings.ReplaceAll(text, "/", slash))
	return ok && err == nil
}

// JoinCASet tells the server the Puppet CA of the site. If CA is empty, no machine may join with a certificate.
type JoinCASet struct {
	CA  string `json:"ca,omitempty"`  // certificates in PEM
	CRL string `json:"crl,omitempty"` // certificate revocation lists in PEM. If CRL is empty, no certificate counts as revoked
}

// Kind implements Body.
func (*JoinCASet) Kind() string { return "joinca.set" }

// ID implements Body.
func (*JoinCASet) ID() string { return "joinca" }

// NodePending is a machine that waits for an operator's approval. Its certificate is valid, but no rule of the fleet file
// lets it join.
type NodePending struct {
	Node        NodeName        `json:"node"`
	Certificate NodeCertificate `json:"certificate"`
	Why         string          `json:"why"` // why an operator must decide
}

// Kind implements Body.
func (*NodePending) Kind() string { return "node.pending" }

// ID implements Body.
func (b *NodePending) ID() string { return string(b.Node) }

// NodeApproved lets a machine join that waits. The approval is for one public key.
type NodeApproved struct {
	Node   NodeName    `json:"node"`
	Key    Digest      `json:"key"` // NodeCertificate.Key
	Groups []GroupName `json:"groups,omitempty"`
}

// Kind implements Body.
func (*NodeApproved) Kind() string { return "node.approved" }

// ID implements Body.
func (b *NodeApproved) ID() string { return string(b.Node) }

// NodeRejected refuses a machine that waits. An operator can approve the machine later.
type NodeRejected struct {
	Node NodeName `json:"node"`
	Key  Digest   `json:"key"` // NodeCertificate.Key
}

// Kind implements Body.
func (*NodeRejected) Kind() string { return "node.rejected" }

// ID implements Body.
func (b *NodeRejected) ID() string { return string(b.Node) }
