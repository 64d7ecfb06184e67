"""Object stores: S3 and those that speak its language, Azure Blob Storage and Google Cloud Storage."""
