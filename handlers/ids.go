package handlers

import (
	"net/http"
	"strconv"
	"time"

	"snowgate/idgen"
	"snowgate/internal/problem"
)

// IDs decodes the ids of this deployment. It is safe for concurrent use.
type IDs struct {
	Scheme idgen.Scheme
}

// Decoded holds the fields of an id, as the admin API and the command "token inspect" show them.
type Decoded struct {
	ID       string    `json:"id"`
	Decimal  string    `json:"decimal"` // a string, because ids exceed 2^53
	IssuedAt time.Time `json:"issued_at"`
	// Worker is the number of the worker among all workers of the installation. Revocations,
	// readiness, logs and metrics use this number. With a datacenter field in the layout, the
	// number is composed of Datacenter and WorkerInDatacenter. Otherwise both are nil.
	Worker             int64  `json:"worker"`
	Datacenter         *int64 `json:"datacenter,omitempty"`
	WorkerInDatacenter *int64 `json:"worker_in_datacenter,omitempty"`
	Rollback           *int64 `json:"rollback,omitempty"` // nil if the layout has no such field
	Sequence           int64  `json:"sequence"`
}

// Decode decodes an id by a scheme. Its error wraps [idgen.ErrRange].
func Decode(scheme idgen.Scheme, id idgen.ID) (Decoded, error) {
	parts, err := scheme.Decompose(id)
	if err != nil {
		return Decoded{}, err
	}
	found := Decoded{
		ID: id.String(), Decimal: strconv.FormatInt(int64(id), 10),
		IssuedAt: parts.Time, Sequence: parts.Sequence,
		Worker: scheme.Layout().WorkerIndex(idgen.Worker{Datacenter: parts.Datacenter, Number: parts.Worker}),
	}
	if scheme.Layout().Bits(idgen.FieldDatacenter) > 0 {
		found.Datacenter, found.WorkerInDatacenter = &parts.Datacenter, &parts.Worker
	}
	if scheme.Layout().Bits(idgen.FieldRollback) > 0 {
		found.Rollback = &parts.Rollback
	}
	return found, nil
}

// Read decodes the id at the end of the path: 11 base62 characters, or a decimal number.
func (h *IDs) Read(w http.ResponseWriter, r *http.Request) error {
	if err := checkRead(r); err != nil {
		return err
	}
	text := r.PathValue("id")
	id, err := idgen.Parse(text)
	if err != nil {
		id, err = idgen.ParseDecimal(text)
	}
	if err != nil {
		return problem.New(http.StatusBadRequest, "This is not an id: an id has 11 characters of 0-9A-Za-z, or is a decimal number.", err)
	}
	found, err := Decode(h.Scheme, id)
	if err != nil {
		return problem.New(http.StatusBadRequest, "The id does not fit the layout.", err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return WriteJSON(w, http.StatusOK, found)
}
