package main

const devFile = "dev.json"

// devDoc is DIR/dev.json: the addresses, for people and programs.
type devDoc struct {
	Region    string       `json:"region"`
	API       string       `json:"api"`
	Link      string       `json:"link"`            // host:port
	Peers     string       `json:"peers,omitempty"` // host:port, with several regions
	Temporal  string       `json:"temporal"`
	Namespace string       `json:"namespace"`
	Web       string       `json:"web"`
	Gateway   string       `json:"gateway"` // "" until there is a gateway process
	Token     string       `json:"token"`
	TLS       *devTLS      `json:"tls,omitempty"` // with --tls
	Processes []devProcess `json:"processes"`
}

// devTLS are the client files for API and link.
type devTLS struct {
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func (l *laptop) devTLS() *devTLS {
	if l.authority == nil {
		return nil
	}
	return &devTLS{CA: l.authority.ca(), Cert: l.people.Cert, Key: l.people.Key}
}

type devProcess struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"` // 0 when it does not run
	Running bool   `json:"running"`
}

// with returns the document with the current processes.
func (d devDoc) with(views []processView) devDoc {
	d.Processes = make([]devProcess, 0, len(views))
	for _, v := range views {
		d.Processes = append(d.Processes, devProcess{Name: v.Name, PID: v.PID, Running: v.Running})
	}
	return d
}
