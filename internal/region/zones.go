package region

import _ "time/tzdata" // the windows of fleet changes name zones, and a machine may have no database of them
