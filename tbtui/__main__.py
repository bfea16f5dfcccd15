from tbtui.cli import main

main()
