from specdec_tui.cli import main

raise SystemExit(main())
