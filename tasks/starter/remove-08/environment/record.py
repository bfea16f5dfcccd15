cloud
