package data

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

// The type `sealed` is a secret. A value of this type never changes. To add a piece, setSecret makes a new value.
type sealed struct {
	id       string
	recovery []byte
	targets  []string
	pieces   map[tutti.NodeName]tutti.Piece
	since    map[tutti.NodeName]uint64
	replaced map[tutti.NodeName]bool // nodes whose previous machine had the secret
	setBy    map[string]Volume       // the volume of the secret and its pieces, by the actors who set them
}

// digestFor returns the digest of a node's answer. digestFor returns an empty digest if the node gets no answer. A
// node gets a secret only if the secret is sealed to the node's present key.
func (s *State) digestFor(v value, node tutti.NodeName) tutti.Digest {
	if v.sealed != nil && !s.opens(v.sealed, node) {
		return ""
	}
	return v.digest
}

func (s *State) opens(secret *sealed, node tutti.NodeName) bool {
	p, has := secret.pieces[node]
	return has && p.Box == s.boxes[node]
}

// valueFor returns a value in the form that the node `opener` gets. If no piece is sealed to this node, the
// returned secret has no piece.
func (s *State) valueFor(v value, opener tutti.NodeName) json.RawMessage {
	switch {
	case v.sealed == nil:
		return v.Value
	case !s.opens(v.sealed, opener):
		return v.secret().Value(nil)
	}
	return v.secret().Value(v.sealed.pieces[opener].Sealed)
}

func (v value) secret() tutti.Secret {
	return tutti.Secret{Key: v.Key, ID: v.sealed.id, For: v.sealed.targets, Recovery: v.sealed.recovery}
}

// setSecret stores a new secret for a key, or more pieces for the present secret.
func (s *State) setSecret(e tutti.Event, b *tutti.SecretSealed) {
	v := s.values[b.Key]
	had := v.sealed
	next := &sealed{id: b.Secret.ID, recovery: b.Recovery, targets: b.For, pieces: map[tutti.NodeName]tutti.Piece{}, since: map[tutti.NodeName]uint64{}, replaced: map[tutti.NodeName]bool{}, setBy: map[string]Volume{}}
	if had != nil && had.id == next.id {
		maps.Copy(next.pieces, had.pieces)
		maps.Copy(next.since, had.since)
		maps.Copy(next.replaced, had.replaced)
		maps.Copy(next.setBy, had.setBy)
		if len(b.Recovery) == 0 {
			next.recovery = had.recovery
		}
	} else {
		v = value{ValueView: api.ValueView{Key: b.Key, Owner: b.Owner, By: e.By, At: e.At, Seq: e.Seq, Run: b.Run, Job: b.Job}}
	}
	for _, p := range b.Pieces {
		// A piece with another key means that the node's machine was replaced. There is one exception: the node has
		// changed its own key, and has itself sealed its pieces to the new key.
		if old, has := next.pieces[p.Node]; has && old.Box != p.Box && e.By != tutti.ActorNode(p.Node) {
			next.replaced[p.Node] = true
		}
		next.pieces[p.Node], next.since[p.Node] = p, e.Seq
	}
	next.setBy[e.By] = next.setBy[e.By].plus(VolumeOfSecret(b.Secret))
	v.sealed, v.digest = next, b.Digest()
	v.Value = v.secret().Value(nil)
	s.put(v)
}

// setBox sets the key to which the secrets of a node must be sealed. The argument `box` is empty if there is no such
// node. If a secret is sealed to an older key, the node gets no answer.
func (s *State) setBox(node tutti.NodeName, box tutti.Digest) {
	if s.boxes[node] == box {
		return
	}
	type answers struct{ value, hiera tutti.Digest }
	now := func(path string) (a answers) {
		a.value = s.digestFor(s.values[path], node)
		if of, key, is := hieraKey(path); is && (of == "" || of == node) {
			a.hiera = s.hieraValue(node, key).digest
		}
		return a
	}
	had := make(map[string]answers, len(s.sealed))
	for path := range s.sealed {
		had[path] = now(path)
	}
	if s.boxes[node] = box; box == "" {
		delete(s.boxes, node)
	}
	r := s.records[node]
	if r == nil {
		return
	}
	for path, was := range had {
		_, key, _ := hieraKey(path)
		is := now(path)
		q, h := s.questions[identity{kind: tutti.QueryValue, key: path}], s.questions[identity{kind: tutti.QueryHiera, key: key}]
		if is.value != was.value && q != nil && r.asks(q) || is.hiera != was.hiera && h != nil && r.asks(h) {
			s.touch(r)
		}
	}
}

// Sealed is the public information about a secret.
type Sealed struct {
	View   api.ValueView
	Secret tutti.Secret                    // without pieces
	Boxes  map[tutti.NodeName]tutti.Digest // digest of the key to which each piece is sealed
	// Had are the nodes to which the secret was ever sealed, including the present ones.
	Had []tutti.NodeName
	// Replaced are the nodes whose previous machine had the secret.
	Replaced []tutti.NodeName
}

// Secret returns the secret with this key.
func (s *State) Secret(key string) (Sealed, bool) {
	v := s.values[key]
	if v.sealed == nil {
		return Sealed{}, false
	}
	out := Sealed{View: v.ValueView, Secret: v.secret(), Boxes: make(map[tutti.NodeName]tutti.Digest, len(v.sealed.pieces))}
	for node, p := range v.sealed.pieces {
		if s.opens(v.sealed, node) {
			out.Boxes[node] = p.Box
		}
	}
	out.Had = slices.Sorted(maps.Keys(v.sealed.since))
	for _, node := range out.Had {
		if box := s.boxes[node]; v.sealed.replaced[node] || box != "" && box != v.sealed.pieces[node].Box {
			out.Replaced = append(out.Replaced, node)
		}
	}
	return out, true
}

// Secrets returns all secrets, sorted by key.
func (s *State) Secrets() []Sealed {
	var out []Sealed
	for key := range s.sealed {
		one, _ := s.Secret(key)
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Sealed) int { return cmp.Compare(a.View.Key, b.View.Key) })
	return out
}

// PiecesOf returns the pieces that are sealed to a node, sorted by key, with the ids of their secrets.
func (s *State) PiecesOf(node tutti.NodeName) []wire.OwnPiece {
	out := []wire.OwnPiece{}
	for path := range s.sealed {
		if v := s.values[path]; s.opens(v.sealed, node) {
			out = append(out, wire.OwnPiece{Key: path, ID: v.sealed.id, Sealed: v.sealed.pieces[node].Sealed})
		}
	}
	slices.SortFunc(out, func(a, b wire.OwnPiece) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Lacked is a secret that is not sealed to a node which wants it.
type Lacked struct {
	Path string
	For  []string
}

// Lacks returns the secret that is the reason why a question finds nothing for a node. Lacks returns false if there
// is no such secret.
func (s *State) Lacks(q tutti.Query, node tutti.NodeName) (Lacked, bool) {
	v := s.values[q.Key]
	if q.Kind == tutti.QueryHiera {
		var own bool
		if v, own = s.hiera[node][q.Key]; !own {
			v = s.shared[q.Key]
		}
	}
	if v.sealed == nil || s.opens(v.sealed, node) {
		return Lacked{}, false
	}
	return Lacked{v.Key, v.sealed.targets}, true
}

// Awaited returns the key of a secret that the node's record asks for and that is not sealed to the node. A secret
// counts only if the function `meant` returns true for its targets. Awaited returns an empty key if there is no such
// secret.
func (s *State) Awaited(node tutti.NodeName, meant func(targets []string) bool) string {
	r := s.records[node]
	if r == nil {
		return ""
	}
	for path := range s.sealed {
		v := s.values[path].sealed
		if s.opens(v, node) {
			continue
		}
		asks := false
		if q := s.questions[identity{kind: tutti.QueryValue, key: path}]; q != nil {
			asks = r.asks(q)
		}
		if of, key, hiera := hieraKey(path); hiera && (of == "" || of == node) && !asks {
			q := s.questions[identity{kind: tutti.QueryHiera, key: key}]
			lacked, lacks := s.Lacks(tutti.Query{Kind: tutti.QueryHiera, Key: key}, node)
			asks = q != nil && r.asks(q) && lacks && lacked.Path == path
		}
		if asks && meant(v.targets) {
			return path
		}
	}
	return ""
}

// LacksHiera returns the results of Lacks for all keys that hiera on the node may ask for, by key.
func (s *State) LacksHiera(node tutti.NodeName) map[string]Lacked {
	out := map[string]Lacked{}
	for path := range s.sealed {
		of, key, is := hieraKey(path)
		if !is || of != "" && of != node {
			continue
		}
		if lacked, lacks := s.Lacks(tutti.Query{Kind: tutti.QueryHiera, Key: key}, node); lacks {
			out[key] = lacked
		}
	}
	return out
}
