package data

import "github.com/tutti-project/tutti"

// Volume is how much somebody has set: the number of events that the log has to keep, and the bytes of the keys and
// values. A value is one event. A secret is one event for each batch of pieces.
type Volume struct{ Events, Bytes int }

func (v Volume) plus(o Volume) Volume { return Volume{v.Events + o.Events, v.Bytes + o.Bytes} }

func (v Volume) minus(o Volume) Volume { return Volume{v.Events - o.Events, v.Bytes - o.Bytes} }

// Within reports whether a volume has at most as many events and bytes as the volume `most`.
func (v Volume) Within(most Volume) bool { return v.Events <= most.Events && v.Bytes <= most.Bytes }

// VolumeOfValue is the volume of a value in canonical form.
func VolumeOfValue(key string, canonical []byte) Volume {
	return Volume{1, len(key) + len(canonical)}
}

// VolumeOfSecret is the volume of a secret, or of pieces that are added to a secret.
func VolumeOfSecret(s tutti.Secret) Volume {
	size := len(s.Key) + len(s.ID) + s.Size()
	for _, target := range s.For {
		size += len(target)
	}
	for _, p := range s.Pieces {
		size += len(p.Node) + len(p.Box)
	}
	return Volume{1, size}
}

// SetBy returns the volume of the values that an actor has set and that still exist.
func SetBy(s *State, actor string) Volume { return s.setBy[actor] }

// SetByAfter returns what SetBy would return after the actor has set a key with this volume. If `adds` is true, the
// volume is added to the present secret.
func SetByAfter(s *State, actor, key string, volume Volume, adds bool) Volume {
	after := s.setBy[actor].plus(volume)
	if !adds {
		after = after.minus(s.values[key].setBy()[actor])
	}
	return after
}

// setBy returns, for each actor who has set the value, the volume of the value. Several actors may have added pieces to
// a secret.
func (v value) setBy() map[string]Volume {
	switch {
	case v.Key == "": // no value
		return nil
	case v.sealed != nil:
		return v.sealed.setBy
	}
	return map[string]Volume{v.By: VolumeOfValue(v.Key, v.Value)}
}

// When one value replaces another, the function `account` updates the volumes of the actors.
func account(s *State, had, has value) {
	for actor, volume := range had.setBy() {
		if s.setBy[actor] = s.setBy[actor].minus(volume); s.setBy[actor] == (Volume{}) {
			delete(s.setBy, actor)
		}
	}
	for actor, volume := range has.setBy() {
		s.setBy[actor] = s.setBy[actor].plus(volume)
	}
}
